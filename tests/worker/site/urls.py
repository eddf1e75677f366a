"""No pages: a worker serves none, and what it does not import starts faster."""

urlpatterns: list[object] = []
