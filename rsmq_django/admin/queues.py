"""The pages of queues: the list of all of them, and what can be done to one."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..models import Queue
from .formats import as_duration, as_size, one_line
from .site import LiveAdmin


@admin.register(Queue)
class QueueAdmin(LiveAdmin):
    """See the module."""

    list_display = ("shown_name", "ready", "hidden", "messages", "oldest", "total_sent", "total_received", "links")
    list_filter = ("is_configured", "holds_dead_letters")
    search_fields = ("name",)

    @admin.display(description=gettext_lazy("queue"), ordering="name")
    def shown_name(self, queue: Queue) -> str:
        """Return the name, which is what the row links from."""
        return one_line(queue.key, 60)

    @admin.display(description=gettext_lazy("oldest ready"), ordering="oldest_ready_s")
    def oldest(self, queue: Queue) -> str:
        """Return how long the first ready message has been waiting."""
        return as_duration(queue.oldest_ready_s)

    @admin.display(description=gettext_lazy("look at"))
    def links(self, queue: Queue) -> str:
        """Return a link to the messages."""
        return format_html('<a href="{}">{}</a>', messages_url(queue), gettext_lazy("messages"))

    @admin.display(description=gettext_lazy("maximum size"))
    def max_size(self, queue: Queue) -> str:
        """Return how long a message may be."""
        return _("no limit") if queue.max_size_bytes < 0 else as_size(queue.max_size_bytes)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return whether the user may change attributes."""
        return self.may(request, "change_queue")


def messages_url(queue: Queue, **filters: str) -> str:
    """Return the address of the list of a queue's messages."""
    return f"{reverse('admin:rsmq_message_changelist')}?{urlencode({'queue': queue.key, **filters})}"
