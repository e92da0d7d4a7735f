"""What keeps held room at the API server, where no scheduler is asked: bare bindings, node names, other resizes."""
