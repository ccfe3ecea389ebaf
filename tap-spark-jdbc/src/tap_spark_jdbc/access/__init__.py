"""Access to a database beyond an address and a password: SSH tunnels, cloud logins.

It may import `config`. Start with `ssh_tunnel`.
"""
