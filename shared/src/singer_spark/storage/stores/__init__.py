"""The object stores behind `ObjectFiles`: a `Bucket` for each library that accesses them.

S3 and Azure through obstore, Google's store through its JSON API, any other through fsspec.
`option_names` lists the valid names in `storage_options` for each. Start with `opening`.
"""
