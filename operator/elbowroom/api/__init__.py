"""The kinds that users and administrators see: their models, and the CRDs generated from them."""
