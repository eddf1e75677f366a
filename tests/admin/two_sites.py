"""URLs with two admin sites: Django's own, and one of the project under another name and address."""

from django.contrib import admin
from django.urls import path

from rsmq_django.admin import register

ops = admin.AdminSite(name="ops")
register(ops)

urlpatterns = [path("admin/", admin.site.urls), path("ops/", ops.urls)]
