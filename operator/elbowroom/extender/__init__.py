"""Holds for a stock scheduler that can only be configured: it asks this process over HTTP, and has it bind its pods."""
