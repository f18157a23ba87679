"""Records and who holds them: built-in data sets, the user's own files, and ways to deal records out to clients."""
