"""What makes and checks the documentation site.

tutorials  executes the tutorials and writes them down as notebooks and as pages
site       checks a built site: every link leads somewhere, and nothing is requested from elsewhere
"""
