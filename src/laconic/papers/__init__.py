"""The papers' published tables: one TOML file each, with its settings and its figures."""
