"""The papers' networks, and any module of the user's."""
