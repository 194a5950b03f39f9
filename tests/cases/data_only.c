//# with: data_user.c
//# call: sum() = 60
int values[] = {10, 20, 30};
const char name[] = "values";
