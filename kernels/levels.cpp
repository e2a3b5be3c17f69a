// The module that Python imports where the kernels were compiled for several levels of instructions: it loads those of the
// highest level that this machine has, at most what the environment variable WEFT_KERNELS names, and is them. Each level is a
// library of its own, and this one is compiled without any.
#include <Python.h>

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <string>

namespace {

struct Level {
    const char *name;
    bool here;
};

// From the lowest; WEFT_LEVELS names them as well, for messages.
std::array<Level, 3> levels() {
    __builtin_cpu_init();
    return {{{"x86-64-v2", __builtin_cpu_supports("x86-64-v2") != 0},
             {"x86-64-v3", __builtin_cpu_supports("x86-64-v3") != 0},
             {"x86-64-v4", __builtin_cpu_supports("x86-64-v4") != 0}}};
}

PyObject *refuse(const std::string &why) {
    PyObject *name = PyUnicode_FromString("weft._kernels"), *text = PyUnicode_FromString(why.c_str());
    if (name && text) PyErr_SetImportError(text, name, nullptr);
    Py_XDECREF(name);
    Py_XDECREF(text);
    return nullptr;
}

// The library of a level lies beside this one.
std::string path_of(std::string level) {
    Dl_info own;
    if (!dladdr(reinterpret_cast<void *>(&path_of), &own)) return "";
    const std::string path = own.dli_fname;
    for (char &c : level)
        if (c == '-') c = '_';
    return path.substr(0, path.find_last_of('/') + 1) + "_kernels_" + level + WEFT_SUFFIX;
}

} // namespace

extern "C" __attribute__((visibility("default"))) PyObject *PyInit__kernels() {
    const char *most = std::getenv("WEFT_KERNELS");
    std::string chosen;
    bool known = !most || !*most, below = true;
    for (const auto &[name, here] : levels()) {
        if (below && here) chosen = name;
        if (most && name == std::string(most)) {
            known = true;
            below = false;
        }
    }
    if (!known) return refuse(std::string("WEFT_KERNELS=") + most + " is no level: name one of " WEFT_LEVELS);
    if (chosen.empty())
        return refuse("this processor has none of the levels of instructions that Weft was compiled for (" WEFT_LEVELS
                      "): build Weft from source on this machine");
    const std::string path = path_of(chosen);
    void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) return refuse(std::string("the kernels did not load: ") + dlerror() + "; install Weft again");
    auto start = reinterpret_cast<PyObject *(*)()>(dlsym(library, "PyInit__kernels"));
    if (!start) return refuse(path + " is not Weft's: install Weft again");
    return start();
}
