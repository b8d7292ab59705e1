"""JMS messages: headers, properties, bodies, destinations, selectors, and their format on the wire."""
