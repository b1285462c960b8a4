package convert
import ("testing";"fmt")
func TestTmp(t *testing.T){
 for _, kept := range []bool{false,true} {
 e:=pizzaEngine(t,kept)
 a,err:=e.Review(benchReview(2,400))
 if err!=nil {t.Fatal(err)}
 fmt.Println(string(a.Bytes()))
 }
}
