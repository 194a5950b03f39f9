// Messages that are built, written, read, compared, printed as text and as JSON, and reached by reflection.
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/message_differencer.h>

#include <iostream>

#include "protobuf.pb.h"

int main() {
    shop::Order order;
    shop::Order *last = &order;
    for (int i = 0; i < 50; i++) {
        shop::Item *item = last->add_items();
        item->set_name("item " + std::to_string(i));
        item->set_price(i * 1000003LL - 5);
        for (int k = 0; k < i; k++) item->add_weights(k / 4.0);
        (*item->mutable_stock())["here"] = i;
        i % 2 ? item->set_note("odd") : item->set_blob(std::string("\0\1\2", 3));
        item->set_kind(i % 3 ? shop::Item::PLAIN : shop::Item::LARGE);
        if (i % 10 == 9) last = last->mutable_previous();
    }
    std::string bytes = order.SerializeAsString(), json, text;
    std::cout << bytes.size() << ' ' << order.ByteSizeLong() << '\n';
    shop::Order back;
    if (!back.ParseFromString(bytes) || !google::protobuf::util::MessageDifferencer::Equals(order, back)) return 1;
    google::protobuf::util::JsonPrintOptions options;
    options.add_whitespace = true;
    if (!google::protobuf::util::MessageToJsonString(back.items(3), &json, options).ok()) return 2;
    google::protobuf::TextFormat::PrintToString(back.items(4), &text);
    std::cout << json << text;
    shop::Item parsed;
    if (!google::protobuf::util::JsonStringToMessage(json, &parsed).ok()) return 3;
    const auto *field = parsed.GetDescriptor()->FindFieldByName("price");
    std::cout << field->full_name() << ' ' << parsed.GetReflection()->GetInt64(parsed, field) << '\n';
    for (size_t cut = 1; cut < 40; cut++) std::cout << shop::Order().ParseFromString(bytes.substr(0, bytes.size() - cut));
    std::cout << '\n';
    google::protobuf::ShutdownProtobufLibrary();
}
