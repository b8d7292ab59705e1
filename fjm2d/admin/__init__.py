"""The gateway's side of the node-list service: requests, and the node list that they bring."""
