"""How tenants share workers: a simulation with the policy of the service."""
