"""The models without tables: content types and permissions come from here."""
