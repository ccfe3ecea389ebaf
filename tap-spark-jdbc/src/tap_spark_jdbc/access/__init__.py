"""How a database is got at where an address and a password are not enough: SSH tunnels, logins of a cloud.

It may import `config`. Start with `ssh_tunnel`.
"""
