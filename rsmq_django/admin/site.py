"""What all our admin pages share: stock lists over live rows, permissions, and a page for when Redis is away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlencode

import redis
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.utils import quote, unquote
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.forms import Script
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseBadRequest,
    HttpResponseNotAllowed,
    HttpResponseRedirect,
)
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ..conf.settings import get_settings
from ..core import errors
from ..core.errors import RedisFailure, RsmqError
from ..core.log_lines import get_logger
from ..core.transport.client import without_place
from ..live.queryset import LiveQuerySet
from ..live.texts import visible
from ..tasks.compat import InvalidTask
from .formats import as_number, formatted_column
from .fragments import conditional, frame, has_stock_lists, is_fragment

logger = get_logger(__name__)

#: Fields of the form of a list or a question, besides those of its rows.
OTHER_FIELDS = 20
#: For texts that Django's admin has translated.
_djangos = _

View = Callable[..., HttpResponseBase]

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
else:
    _ModelAdmin = admin.ModelAdmin  # generic for type checkers only


class Count(int):
    """A number of rows, which the templates of Django and of themes write with separators."""

    def __str__(self) -> str:
        return as_number(int(self))


class PlainChangeList(ChangeList):
    """A stock list whose filters have titles without "By"."""

    def get_filters(self, request: HttpRequest) -> Any:
        """Return the filters of the list."""
        found: Any = super().get_filters(request)
        for spec in found[0]:
            if spec.template == "admin/filter.html":
                spec.template = "admin/rsmq/filter.html"
        return found


class LiveChangeList(PlainChangeList):
    """A list of live rows, which also tells what it did not look at."""

    #: Fields of a form that an action sends for each row.
    fields_per_row = 1

    def get_results(self, request: HttpRequest) -> None:
        """Read the page, with at most as many rows as one form may have: Django refuses a larger form."""
        self.list_per_page, fields = get_settings().admin.page_size, settings.DATA_UPLOAD_MAX_NUMBER_FIELDS
        if fields is not None and self.model_admin.actions:
            most = max(1, (fields - OTHER_FIELDS) // self.fields_per_row)
            self.list_per_page = min(self.list_per_page, most)
            self.list_max_show_all = min(self.list_max_show_all, most)
        super().get_results(request)
        self.result_count = Count(self.result_count)
        len(self.result_list)  # now, so that a server which is away is noticed here and not in the template

    @property
    def notes(self) -> list[str]:
        """Return what the operator should know beside the rows."""
        queryset: Any = self.queryset
        return [*dict.fromkeys(queryset.source.notes), *self.scan_notes]

    @property
    def scan_notes(self) -> list[str]:
        """Return what of the rows was not looked at."""
        queryset: Any = self.queryset
        notes: list[str] = []
        scan = queryset.scanned()
        if scan is not None and not scan.is_complete:
            notes.append(
                ngettext(
                    "Only the first %(looked_at)s of %(of)s message was searched. Choose a queue or a state.",
                    "Only the first %(looked_at)s of %(of)s messages were searched. Choose a queue or a state.",
                    scan.of,
                )
                % {"looked_at": as_number(scan.looked_at), "of": as_number(scan.of)}
            )
        return notes


class RowMissing(Http404):
    """The row of an address does not exist; the text is its key."""


class LiveAdmin(_ModelAdmin):
    """The base of our ModelAdmins. Rows are never added or edited as rows; what changes Redis has a view of its own."""

    change_list_template = "admin/rsmq/change_list.html"
    list_max_show_all = 500
    #: Counting the messages of each filter choice would read every message.
    show_facets = admin.ShowFacets.NEVER
    view_on_site = False
    #: Whether its pages keep themselves up to date.
    is_live = True
    #: Whether a narrow window shows all columns of the list, below each other, in place of some. Themes have their own.
    is_stacked = False

    class Media:
        css: ClassVar = {"all": ["rsmq/admin.css"]}
        # They look for parts of the page, and the admin loads them before there is one.
        js: ClassVar = [Script("rsmq/admin.js", defer=True), Script("rsmq/live.js", defer=True)]

    # -- Permissions --------------------------------------------------------------------------------------------------

    def may(self, request: HttpRequest, codename: str) -> bool:
        """Return whether the user has one of our permissions, such as "purge_queue"."""
        return request.user.has_perm(f"{self.opts.app_label}.{codename}")

    def demand(self, request: HttpRequest, codename: str) -> None:
        """Raise PermissionDenied, which is answered with 403, unless the user has the permission."""
        if not self.may(request, codename):
            raise PermissionDenied

    def row_for(self, request: HttpRequest, object_id: str, *codenames: str) -> Any:
        """Return the row of an address, for users with these permissions who may see it. Raises RowMissing."""
        for codename in codenames:
            self.demand(request, codename)
        if not self.has_view_permission(request):
            raise PermissionDenied
        key = unquote(object_id)
        row = self.model._default_manager.filter(pk=key).first()
        if row is None:
            raise RowMissing(visible(key))
        return row

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Return False: new messages are sent, not added."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False; queues say otherwise."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return whether the permission exists and the user has it: superusers have any, also unknown ones."""
        return "delete" in self.opts.default_permissions and super().has_delete_permission(request, obj)

    # -- Lists --------------------------------------------------------------------------------------------------------

    def get_list_display(self, request: HttpRequest) -> Any:
        """Return the columns; times and numbers are written as on all pages."""
        return [self._formatted(column) for column in super().get_list_display(request)]

    def get_sortable_by(self, request: HttpRequest) -> Any:
        """Return the columns by which the list can be ordered."""
        return [self._formatted(column) for column in super().get_sortable_by(request)]

    def _formatted(self, column: Any) -> Any:
        if not isinstance(column, str) or hasattr(self, column):
            return column
        model: Any = self.model
        return formatted_column(model, column) or column

    def action_checkbox(self, obj: Any) -> SafeString:
        """Return Django's checkbox; a widget that is rendered by a template for each row costs a tenth of a page."""
        label = _djangos("Select this object for an action - {}").format(obj)
        return format_html(
            '<input type="checkbox" name="{}" value="{}" class="action-select" aria-label="{}">',
            ACTION_CHECKBOX_NAME,
            obj.pk,
            label,
        )

    # -- Pages --------------------------------------------------------------------------------------------------------

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        """Show the list with the plural name of the model as its title, not "Select ... to change"."""
        if is_fragment(request) and has_stock_lists():
            return self._list_fragment(request)
        title = capfirst(str(self.opts.verbose_name_plural))
        context = {"title": title, "is_live": self.is_live, "is_stacked": self.is_stacked and has_stock_lists()}
        return super().changelist_view(request, {**context, **(extra_context or {})})

    def _list_fragment(self, request: HttpRequest) -> HttpResponse:
        """Return the content of the list, without what the stock view gathers for its frame."""
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        try:
            rows: Any = self.get_changelist_instance(request)
        except IncorrectLookupParameters:
            return HttpResponseBadRequest()
        rows.formset = None
        context = {"cl": rows, "opts": self.opts, "is_live": self.is_live, **frame(request)}
        request.current_app = self.admin_site.name
        return TemplateResponse(request, self.change_list_template, context)

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """Return a row, or None. A refresh of a missing row raises Http404.

        Django would leave a line for the next page, one for each refresh of a page that stays open.
        """
        found = super().get_object(request, object_id, from_field)
        if found is None and is_fragment(request) and self.has_view_or_change_permission(request):
            raise Http404
        return found

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        """Show a row, in the frame that was asked for."""
        context |= {"is_live": self.is_live, **frame(request)}
        return super().render_change_form(request, context, *args, **kwargs)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Return our list."""
        return LiveChangeList

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[LiveQuerySet, bool]:
        """Search in Redis rather than in columns."""
        return (queryset.search(search_term) if search_term.strip() else queryset), False

    def own_urls(self) -> Sequence[URLPattern]:
        """Return the URLs of the pages that the stock admin does not have. Made with `own_url`."""
        return ()

    def own_url(self, route: str, view: View, name: str, *, post_only: bool = False) -> URLPattern:
        """Return one URL below the model's; its name becomes "admin:rsmq_<model>_<name>", see `address`."""
        guarded = _post_only(view) if post_only else view
        return path(route, self.admin_site.admin_view(guarded), name=f"rsmq_{self.opts.model_name}_{name}")

    def get_urls(self) -> list[URLPattern]:
        """Return all URLs; each answers with a page when Redis does not answer."""
        urls = [*self.own_urls(), *super().get_urls()]
        for url in urls:
            url.callback = self._without_redis(url.callback)
        return urls

    def _without_redis(self, view: View) -> View:
        @wraps(view)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            try:
                response = view(request, *args, **kwargs)
                if isinstance(response, TemplateResponse) and not response.is_rendered:
                    response.render()
                return conditional(request, response)
            except RowMissing as error:
                if request.method != "POST":
                    raise
                return self._missing(request, error)
            except RsmqError as error:
                logger.warning("admin page %s could not be made: %r", request.path, error)
                return self._failure_page(request, error)
            except InvalidTask as error:  # of an import of the project's tasks
                logger.warning("admin page %s could not be made: %r", request.path, error)
                return self._failure_page(request, error)

        return guarded

    def _missing(self, request: HttpRequest, error: RowMissing) -> HttpResponse:
        """Return the answer to an operation on a row that has ended or was deleted since the page was shown."""
        text = _djangos("%(name)s with ID “%(key)s” doesn’t exist. Perhaps it was deleted?")
        self.tell(request, text % {"name": self.opts.verbose_name, "key": error}, is_good=False)
        return HttpResponseRedirect(self.address(f"{self.opts.model_name}_changelist"))

    def _failure_page(self, request: HttpRequest, error: RsmqError | InvalidTask) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "title": title_of(error),
            "opts": self.opts,
            "media": self.media,
            "explanation": explanation_of(error) if isinstance(error, RsmqError) else visible(str(error)),
            "can_repeat": request.method == "GET",  # by a link, which sends no form
        }
        is_temporary = isinstance(error, (RedisFailure, InvalidTask))
        status = 503 if is_temporary else 404 if isinstance(error, errors.QueueNotFound) else 409
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/rsmq/failure.html", context, status=status).render()

    def own_page(
        self, request: HttpRequest, template: str, context: dict[str, Any], *, status: int = 200
    ) -> TemplateResponse:
        """Return a page of ours in the frame of the admin."""
        request.current_app = self.admin_site.name
        whole = {**self.admin_site.each_context(request), "opts": self.opts, "media": self.media}
        whole |= {**context, **frame(request)}
        return TemplateResponse(request, f"admin/rsmq/{template}", whole, status=status)

    def address(self, page: str, *keys: str, **query: str) -> str:
        """Return the address of a page on this admin site, such as that of "queue_change" with its key."""
        args = [quote(key) for key in keys]
        url = reverse(f"admin:rsmq_{page}", args=args, current_app=self.admin_site.name)
        return f"{url}?{urlencode(query)}" if query else url

    def tell(self, request: HttpRequest, text: str, *, is_good: bool = True) -> None:
        """Show a line on the next page."""
        self.message_user(request, text, messages.SUCCESS if is_good else messages.WARNING)


#: What to tell an operator. The error's own text may name the server's address, so it goes to the log only.
EXPLANATIONS: tuple[tuple[type[RsmqError], Callable[[], str]], ...] = (
    (
        errors.SentinelDenied,
        lambda: _("The sentinels deny access. Correct sentinel_username and sentinel_password in the URL."),
    ),
    (
        errors.PermissionDenied,
        lambda: _("The Redis user has no permission for this command. Check its access control list (ACL)."),
    ),
    (errors.QueueFull, lambda: _("The Redis server has reached its memory limit.")),
    (errors.ServerRefused, lambda: _("The Redis server refused the command: it may be loading, read-only or busy.")),
    (
        errors.NotConfirmed,
        lambda: _(
            "This was carried out, but too few replicas or disks confirmed it in time: a failover may lose it. "
            "Do not repeat it."
        ),
    ),
    (errors.OutcomeUnknown, lambda: _("The reply of the Redis server was lost. Check whether the change was made.")),
    (
        RedisFailure,
        lambda: _("No connection to the Redis server. Workers reconnect automatically."),
    ),
)


def title_of(error: Exception) -> str:
    """Return the title of the page about an error."""
    if isinstance(error, errors.PermissionDenied):
        return _("Redis denies access")
    return _("Redis does not answer") if isinstance(error, RedisFailure) else _("This cannot be shown")


def _denial(reply: redis.RedisError) -> str:
    """Return a sentence about a reply of the server, which names the user or the command, and no address."""
    text = visible(without_place(str(reply))).rstrip(".")
    if isinstance(reply, redis.AuthenticationError):
        return _("Redis refused the user or the password of the connection (%(reply)s).") % {"reply": text}
    return _(
        "The Redis user has no permission for this command (%(reply)s). “rsmqctl acl viewer” prints the rules of a "
        "user for all pages, “rsmqctl acl operator” those for their actions, too."
    ) % {"reply": text}


def explanation_of(error: RsmqError) -> str:
    """Return a sentence about an error."""
    if isinstance(error, errors.PermissionDenied) and isinstance(error.__cause__, redis.RedisError):
        return _denial(error.__cause__)
    for kind, text in EXPLANATIONS:
        if isinstance(error, kind):
            return text()
    return str(error)


def _post_only(view: View) -> View:
    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        return view(request, *args, **kwargs)

    return guarded
