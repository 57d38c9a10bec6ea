"""Followers: what they fetch from their leaders, and where they cut their logs."""
