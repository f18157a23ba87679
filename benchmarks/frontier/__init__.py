"""How accurate a private model can be for an ε and a number of bytes: Fashion-MNIST behind the scattering front end."""
