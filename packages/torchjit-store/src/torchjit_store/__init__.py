"""Compiled entries on disk: a second process skips capture and compilation."""
