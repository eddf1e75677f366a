"""Look at everything the site stores."""

from django.contrib import admin

from .models import Claim, DayReport, DelayNotice, FinishedTask, Flight, Tracker, Weather


@admin.register(Flight)
class FlightAdmin(admin.ModelAdmin):
    date_hierarchy = "day"
    list_display = (
        "code",
        "origin",
        "destination",
        "scheduled_departure",
        "departed_at",
        "gate",
        "departure_delay_min",
    )
    list_filter = ("origin", "carrier")
    search_fields = ("=carrier", "=number", "=destination", "=tail_number")


@admin.register(DelayNotice)
class DelayNoticeAdmin(admin.ModelAdmin):
    list_display = ("flight", "delay_min", "sent_at", "reminded_at")
    list_select_related = ("flight",)
    raw_id_fields = ("flight",)


@admin.register(Claim)
class ClaimAdmin(admin.ModelAdmin):
    list_display = ("flight", "reason", "voucher_usd", "opened_at")
    list_filter = ("reason",)
    list_select_related = ("flight",)
    raw_id_fields = ("flight",)


@admin.register(Tracker)
class TrackerAdmin(admin.ModelAdmin):
    list_display = ("code", "day", "asked_at", "task_id")


@admin.register(Weather)
class WeatherAdmin(admin.ModelAdmin):
    list_display = ("station", "observed_at", "temperature_f", "wind_mph", "visibility_miles")
    list_filter = ("station",)


@admin.register(DayReport)
class DayReportAdmin(admin.ModelAdmin):
    list_display = ("day", "counts")


@admin.register(FinishedTask)
class FinishedTaskAdmin(admin.ModelAdmin):
    list_display = ("finished_at", "name", "queue_name", "has_succeeded", "attempts", "error")
    list_filter = ("has_succeeded", "name", "error")
    search_fields = ("=task_id",)
