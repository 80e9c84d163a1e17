"""The relay beside pycrdt-websocket: durable appends, fan-out, idle connections, one keystroke."""
