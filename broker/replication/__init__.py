"""Followers: their fetches from leaders, and the truncation of their logs."""
