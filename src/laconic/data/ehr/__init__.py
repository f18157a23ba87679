"""Health records: from a hospital's export, described by a small schema, to sparse records of patients."""
