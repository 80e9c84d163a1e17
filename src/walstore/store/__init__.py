"""Documents that a UI holds: read and edited at once, told in deltas, durable and live."""
