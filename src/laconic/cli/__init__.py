"""The command line. Nothing here imports torch before a command that needs it runs."""
