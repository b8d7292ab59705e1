"""Networks that benchmarks run in, made of network namespaces, and the gateways between them."""
