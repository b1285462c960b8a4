package generate
import ("testing";"encoding/json";"fmt")
func TestDbg(t *testing.T){
 v,_ := version(t,4)
 b,_ := json.Marshal(v.Schema().Properties["status"])
 fmt.Println(string(b))
 o,_ := Small(v, ObjectOptions{}, 3, 50)
 for _, x := range o { b,_ := json.Marshal(x["status"]); fmt.Println(string(b)) }
}
