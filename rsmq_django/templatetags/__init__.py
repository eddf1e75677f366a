"""Template tags: `rsmq` for templates of projects, `rsmq_admin` for the templates of `admin/`.

They format what `admin/` passes to them; nothing here reads Redis.
"""
