"""Every option of a run, declared once: its name, default, help, check, and whether it makes another run.

Command line, configuration file, Python, docs/options.md and the identity of a run follow from these declarations.

declare         what a declaration holds, and how to read those of a section
scheme_options  the options that schemes take, by name
sections        the sections of a configuration, and the options in each
"""
