"""This project as a candidate: a Django project as small as can be, run by the same commands that a user has."""
