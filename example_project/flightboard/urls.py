"""The pages of the board."""

from django.urls import path

from . import views

app_name = "flightboard"
urlpatterns = [
    path("", views.board, name="board"),
    path("live/", views.live, name="live"),
    path("track/", views.track, name="track"),
    path("track/<uuid:pk>/", views.tracker, name="tracker"),
    path("track/<uuid:pk>/live/", views.tracker_live, name="tracker-live"),
]
