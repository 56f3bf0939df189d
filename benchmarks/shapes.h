// SPDX-License-Identifier: Apache-2.0
// Named model shapes, from shapes/models.csv.
#pragma once

#include <fstream>
#include <snug/snug.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace snug::bench {

struct Shape {
  std::string name;
  snug_caps caps;
};

inline snug_activation activation_of(const std::string& name) {
  if (name == "relu2") return {SNUG_RELU2, 1, 0, 0};
  if (name == "swiglu_oai") return {SNUG_SWIGLU_OAI, 1.702f, 1, 7};
  return {SNUG_SILU, 1, 0, 0};
}

inline std::vector<Shape> read_shapes() {
  std::ifstream file(SNUG_SHAPES_FILE);
  std::string line;
  std::getline(file, line);  // the header
  std::vector<Shape> shapes;
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::vector<std::string> field;
    for (std::string f; std::getline(fields, f, ',');) field.push_back(f);
    Shape shape{field.at(0), make_caps()};
    shape.caps.num_experts = shape.caps.num_local_experts = std::stoi(field.at(1));
    shape.caps.top_k = std::stoi(field.at(2));
    shape.caps.hidden = std::stoi(field.at(3));
    shape.caps.intermediate = std::stoi(field.at(4));
    shape.caps.format = field.at(5) == "mxfp4" ? SNUG_MXFP4 : SNUG_NVFP4;
    shape.caps.activation = activation_of(field.at(6));
    shapes.push_back(shape);
  }
  return shapes;
}

}  // namespace snug::bench
