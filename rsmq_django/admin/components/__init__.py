"""What pages of the admin share: operations on rows, with their actions and permissions.

Questions, forms, choices and cells are templates in `templates/admin/rsmq/components/`, sections and tables are tags in
`templatetags/rsmq_admin.py`. What a page is about is not known here.
"""
