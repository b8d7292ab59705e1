"""Flow control: the receivers that are waited for, the window, and what asks for confirmations."""
