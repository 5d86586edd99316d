// Main of every library's link test: the library is linked in whole with only its declared
// dependencies, so reaching up a layer is an undefined symbol.
int main() {
  return 0;
}
