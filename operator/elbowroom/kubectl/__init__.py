"""`kubectl elbowroom`: what a person at a terminal asks for. It reads and writes objects, and decides nothing."""
