"""The bus: lanes, presence, routing and confirmation of messages over NORM."""
