package junit

import (
	"os"
)

// ExampleWrite shows the results of a command with a passed and a failed case.
func ExampleWrite() {
	err := Write(os.Stdout, "refract test", []Suite{{Name: "shop", File: "shop.yaml", Cases: []Case{
		{Class: "shop.yaml", Name: "web", File: "shop.yaml", Line: 3},
		{Class: "shop.yaml", Name: "api", File: "shop.yaml", Line: 9, Failure: &Failure{Message: "3 < 4", Type: "replicas", Text: "want 4\ngot 3"}},
	}}})
	if err != nil {
		panic(err)
	}
	// Output:
	// <?xml version="1.0" encoding="UTF-8"?>
	// <testsuites name="refract test" tests="2" failures="1">
	//   <testsuite name="shop" file="shop.yaml" tests="2" failures="1">
	//     <testcase classname="shop.yaml" name="web" file="shop.yaml" line="3"></testcase>
	//     <testcase classname="shop.yaml" name="api" file="shop.yaml" line="9">
	//       <failure message="3 &lt; 4" type="replicas">want 4&#xA;got 3</failure>
	//     </testcase>
	//   </testsuite>
	// </testsuites>
}
