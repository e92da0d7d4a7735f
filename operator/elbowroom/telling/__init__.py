"""What there is to say about requests, nodes and VMs, for people: at the terminal and on the page. Pure."""
