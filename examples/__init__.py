"""Programs that show autosched at work; the tests run them."""
