"""Shows what a bookie does, over HTTP: metrics, health, readiness."""
