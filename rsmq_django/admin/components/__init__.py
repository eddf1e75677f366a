"""The parts that pages of the admin share: operations, questions before them, forms, rows of bodies, pages of rows.

Each comes with its template in `templates/admin/rsmq/components/`. What a page is about is not known here.
"""
