"""Files on a local disk or in a bucket, behind one class: `Storage`.

`files` is what each kind of storage must offer; `local_files` and `object_files` offer it. It may import `config`,
`process` and the errors. Start with `storage`.
"""
