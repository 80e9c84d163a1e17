"""How each Python library is driven: one module per library, one class `Library` in each."""
