"""Parts that several commands share: options, input and output, screens."""
