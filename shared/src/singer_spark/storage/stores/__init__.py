"""The object stores behind `ObjectFiles`: a `Bucket` for each library that speaks to them.

S3 and Azure through obstore, Google's store through its JSON API, any other through fsspec. `option_names` has the
names that `storage_options` may use for each. Start with `opening`.
"""
